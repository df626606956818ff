"""Which way of new weights an engine's settings ask for."""

from __future__ import annotations

from actors.engines.adapters import AdapterUpdater
from actors.engines.direct import BroadcastSender, BroadcastWeightLoader
from actors.engines.dispatch import RequestQueue
from actors.engines.handover import FileWeightLoader, WeightLoader
from actors.engines.settings import EngineSettings
from actors.engines.tensors import TensorWeightLoader
from actors.engines.updates import InPlaceUpdater, WeightUpdater


def create_weight_updater(
    settings: EngineSettings, dispatch: RequestQueue, sender: BroadcastSender | None
) -> WeightUpdater:
    """``sender``: weights come straight from the learner's host."""
    if settings.adapters is not None:
        return AdapterUpdater(settings.adapters, settings.model_path, dispatch)
    return InPlaceUpdater(
        _create_weight_loader(settings, sender), grace_s=settings.load_grace_s, item_bytes=settings.item_bytes
    )


def _create_weight_loader(settings: EngineSettings, sender: BroadcastSender | None) -> WeightLoader:
    if sender is not None:
        return BroadcastWeightLoader(settings.name, settings.tp, sender)
    return FileWeightLoader() if settings.weight_loader == "files" else TensorWeightLoader(settings.device, settings.tp)
