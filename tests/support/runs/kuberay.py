"""The part of KubeRay's RayJob (ray.io/v1) that our manifests use, as a schema that knows nothing else: a misspelt or
misplaced field fails, where Kubernetes would drop it in silence. Held against KubeRay 1.6's field reference by hand."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def only(required: dict[str, Any], optional: dict[str, Any] | None = None) -> Schema:
    """An object with these fields and no other."""
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": [*required],
        "additionalProperties": False,
    }


def many(item: Schema, least: int = 0) -> Schema:
    return {"type": "array", "items": item, "minItems": least}


NAME: Schema = {"type": "string", "pattern": "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$"}
TEXT: Schema = {"type": "string", "minLength": 1}
NUMBER: Schema = {"type": "integer", "minimum": 0}
QUANTITY: Schema = {"type": "string", "pattern": "^[0-9]+(Gi|Mi|m)?$"}
PATH: Schema = {"type": "string", "pattern": "^/"}
EMPTY_DIR = only({"emptyDir": only({}, {"medium": {"const": "Memory"}, "sizeLimit": QUANTITY}), "name": NAME})
CLAIM = only({"persistentVolumeClaim": only({"claimName": NAME}), "name": NAME})
SIZE = only({"cpu": QUANTITY, "memory": QUANTITY}, {"nvidia.com/gpu": QUANTITY})
CONTAINER = only(
    {"name": NAME, "image": TEXT},
    {
        "args": many(TEXT),
        "command": many(TEXT, 1),
        "env": many(only({"name": TEXT, "value": {"type": "string"}})),
        "resources": only({"requests": SIZE, "limits": SIZE}),
        "restartPolicy": {"const": "Always"},
        "securityContext": only({"privileged": {"type": "boolean"}}),
        "startupProbe": only(
            {"exec": only({"command": many(TEXT, 1)})}, {"periodSeconds": NUMBER, "failureThreshold": NUMBER}
        ),
        "volumeMounts": many(only({"name": NAME, "mountPath": PATH})),
    },
)
POD = only(
    {"containers": many(CONTAINER, 1)},
    {"initContainers": many(CONTAINER), "volumes": many({"oneOf": [EMPTY_DIR, CLAIM]})},
)
TEMPLATE = only({"spec": POD})
START: Schema = {"type": "object", "maxProperties": 0}
"""Labels are the group's own: KubeRay refuses them here."""
GROUP = only(
    {
        "groupName": NAME,
        "replicas": NUMBER,
        "minReplicas": NUMBER,
        "maxReplicas": NUMBER,
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "rayStartParams": START,
        "template": TEMPLATE,
    }
)
CLUSTER = only(
    {
        "rayVersion": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "authOptions": only({"mode": {"enum": ["disabled", "token"]}}),
        "headGroupSpec": only({"rayStartParams": START, "template": TEMPLATE}),
        "workerGroupSpecs": many(GROUP),
    }
)
RAY_JOB = only(
    {
        "apiVersion": {"const": "ray.io/v1"},
        "kind": {"const": "RayJob"},
        "metadata": only({"name": NAME}),
        "spec": only(
            {
                "entrypoint": TEXT,
                "shutdownAfterJobFinishes": {"type": "boolean"},
                "backoffLimit": NUMBER,
                "rayClusterSpec": CLUSTER,
            }
        ),
    }
)
