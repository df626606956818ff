"""Which way of new weights an engine's settings ask for."""

from __future__ import annotations

from actors.engines.adapters import ByName
from actors.engines.direct import FromSender, Sender
from actors.engines.dispatch import Dispatch
from actors.engines.handover import FromFiles, Handover
from actors.engines.settings import EngineSettings
from actors.engines.tensors import FromTensors
from actors.engines.updates import InPlace, Updates


def updates_of(settings: EngineSettings, dispatch: Dispatch, sender: Sender | None) -> Updates:
    """``sender``: weights come straight from the learner's host."""
    if settings.adapters is not None:
        return ByName(settings.adapters, settings.model_path, dispatch)
    return InPlace(_handover(settings, sender), grace_s=settings.load_grace_s, item_bytes=settings.item_bytes)


def _handover(settings: EngineSettings, sender: Sender | None) -> Handover:
    if sender is not None:
        return FromSender(settings.name, settings.tp, sender)
    return FromFiles() if settings.handover == "files" else FromTensors(settings.device, settings.tp)
