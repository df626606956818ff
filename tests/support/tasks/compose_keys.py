"""The keys of the Compose specification, as Docker Compose 2.40 has them, of the sections in which longshore looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

_KEYS = {
    "": "configs include models name networks secrets services version volumes",
    "networks": "attachable driver driver_opts enable_ipv4 enable_ipv6 external internal ipam labels name",
    "volumes": "driver driver_opts external labels name",
    "services": """
        annotations attach blkio_config build cap_add cap_drop cgroup cgroup_parent command configs
        container_name cpu_count cpu_percent cpu_period cpu_quota cpu_rt_period cpu_rt_runtime cpu_shares
        cpus cpuset credential_spec depends_on deploy develop device_cgroup_rules devices dns dns_opt
        dns_search domainname entrypoint env_file environment expose extends external_links extra_hosts gpus
        group_add healthcheck hostname image init ipc isolation label_file labels links logging mac_address
        mem_limit mem_reservation mem_swappiness memswap_limit models network_mode networks oom_kill_disable
        oom_score_adj pid pids_limit platform ports post_start pre_stop privileged profiles provider
        pull_policy pull_refresh_after read_only restart runtime scale secrets security_opt shm_size
        stdin_open stop_grace_period stop_signal storage_opt sysctls tmpfs tty ulimits use_api_socket user
        userns_mode uts volumes volumes_from working_dir
        """,
    "services.build": """
        additional_contexts args cache_from cache_to context dockerfile dockerfile_inline entitlements
        extra_hosts isolation labels network no_cache platforms privileged provenance pull sbom secrets
        shm_size ssh tags target ulimits
        """,
    "services.deploy": """
        endpoint_mode labels mode placement replicas resources restart_policy rollback_config update_config
        """,
    "services.deploy.resources": "limits reservations",
    "services.deploy.resources.limits": "cpus memory pids",
    "services.deploy.resources.reservations": "cpus devices generic_resources memory",
    "services.deploy.restart_policy": "condition delay max_attempts window",
    "services.depends_on": "condition required restart",
    "services.env_file": "format path required",
    "services.healthcheck": "disable interval retries start_interval start_period test timeout",
    "services.networks": """
        aliases driver_opts gw_priority interface_name ipv4_address ipv6_address link_local_ips mac_address
        priority
        """,
    "services.ulimits": "hard soft",
    "services.volumes": "bind consistency image read_only source target tmpfs type volume",
    "services.volumes.bind": "create_host_path propagation recursive selinux",
    "services.volumes.image": "subpath",
    "services.volumes.volume": "labels nocopy subpath",
    "services.volumes.tmpfs": "mode size",
}


def spec_keys() -> Iterator[str]:
    """Yield each key with a dot between it and its section, names of services and networks left out."""
    for section, names in _KEYS.items():
        yield from (f"{section}.{name}".removeprefix(".") for name in names.split())


def keys_of_schema(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the keys of the same sections in the specification's JSON schema."""
    found = frozenset(_keys(schema, schema, ""))
    return frozenset(each for each in found if each.rpartition(".")[0] in _KEYS)


def _keys(schema: Mapping[str, Any], part: Mapping[str, Any], path: str) -> Iterator[str]:
    if "$ref" in part:
        part = schema["definitions"][part["$ref"].rpartition("/")[2]]
    named: dict[str, Any] = part.get("properties", {})
    yield from (f"{path}{name}" for name in named)
    inner = [(f"{path}{name}.", each) for name, each in named.items()]
    others = [*part.get("oneOf", ()), *part.get("anyOf", ()), *part.get("patternProperties", {}).values()]
    others += [each for each in (part.get("items"), part.get("additionalProperties")) if isinstance(each, dict)]
    for below, each in (*inner, *((path, each) for each in others)):
        if isinstance(each, dict):
            yield from _keys(schema, cast("dict[str, Any]", each), below)
