"""Which way of new weights an engine's settings ask for."""

from __future__ import annotations

from actors.engines.routing.request_queue import RequestQueue
from actors.engines.settings import EngineSettings
from actors.engines.weights.adapter_updater import AdapterUpdater
from actors.engines.weights.broadcast_loader import BroadcastSender, BroadcastWeightLoader
from actors.engines.weights.loader import FileWeightLoader, WeightLoader
from actors.engines.weights.tensor_loader import TensorWeightLoader
from actors.engines.weights.updater import InPlaceUpdater, WeightUpdater


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
