"""Losses in float64 NumPy, one sequence and one token at a time, written from the papers' formulas.

A case is a list of sequences; each token is a dict with ``current``, ``behaviour``, ``advantage``, ``weight``,
``staleness`` and, where a policy needs them, ``proximal``, ``reference`` and ``keep``.
"""

import numpy as np

from learner.losses.objective import Objective
from learner.losses.settings import KlEstimator, LossType, ProximalPolicy


def clip_ppo(ratio, advantage, objective):
    """PPO's pessimistic bound, then the dual clip's bound from below for negative advantages."""
    low, high = 1 - objective.policy_loss.eps_low, 1 + objective.policy_loss.eps_high
    inner = min(ratio * advantage, float(np.clip(ratio, low, high)) * advantage)
    return max(inner, objective.policy_loss.dual_clip * advantage) if advantage < 0 else inner


def proximal_of(token, objective):
    kind = objective.corrections.proximal
    if kind is ProximalPolicy.RECOMPUTED:
        return token["proximal"]
    if kind is ProximalPolicy.LOG_LINEAR:
        alpha = token["staleness"] / (token["staleness"] + 1)
        return (1 - alpha) * token["behaviour"] + alpha * token["stopped"]
    return None


def keeps(token, sequence, objective):
    corrections = objective.corrections
    prox = proximal_of(token, objective)
    trained = token["stopped"] if prox is None else prox
    if (
        corrections.band is not None
        and not corrections.band[0] <= np.exp(trained - token["behaviour"]) <= corrections.band[1]
    ):
        return False
    if corrections.opsm is not None and token["advantage"] < 0:
        divergence = np.mean([other["behaviour"] - other["stopped"] for other in sequence])
        if divergence > corrections.opsm:
            return False
    return token.get("keep", True)


def objective_of(token, sequence, objective):
    """Return one token's loss term before its weight."""
    prox = proximal_of(token, objective)
    anchor = token["behaviour"] if prox is None else prox
    advantage = token["advantage"]
    ratio = np.exp(token["current"] - anchor)
    stopped = np.exp(token["stopped"] - anchor)
    match objective.policy_loss.loss:
        case LossType.CLIP:
            value = clip_ppo(ratio, advantage, objective)
        case LossType.GSPO:
            own = [other for other in sequence if keeps(other, sequence, objective)]
            gaps = [
                other["current"] - (other["behaviour"] if prox is None else proximal_of(other, objective))
                for other in own
            ]
            value = clip_ppo(np.exp(np.mean(gaps)) if gaps else 1.0, advantage, objective)
        case LossType.CISPO:
            low, high = 1 - objective.policy_loss.eps_low, 1 + objective.policy_loss.eps_high
            value = np.clip(stopped, low, high) * advantage * token["current"]
        case LossType.DPPO_TV:
            moved = np.exp(token["stopped"]) - np.exp(token["behaviour"])
            bound = objective.policy_loss.tv_bound
            out = moved > bound if advantage > 0 else moved < -bound
            value = (stopped if out else ratio) * advantage
        case LossType.REINFORCE:
            value = min(stopped, objective.policy_loss.tis_cap) * advantage * token["current"]
    if prox is not None:
        value *= min(np.exp(prox - token["behaviour"]), objective.corrections.cap)
    return value


def kl_of(token, kind):
    """The estimator's value; the gradient of k1 is checked on its own."""
    x = token["reference"] - token["current"]
    return {KlEstimator.K1: -x, KlEstimator.K2: x * x / 2, KlEstimator.K3: np.exp(x) - 1 - x}[kind]


def loss_of(sequences, objective: Objective) -> float:
    total = 0.0
    for sequence in sequences:
        for token in sequence:
            if keeps(token, sequence, objective):
                total -= token["weight"] * objective_of(token, sequence, objective)
            if "reference" in token:
                total += token["weight"] * objective.kl.coefficient * kl_of(token, objective.kl.estimator)
    return total


def with_current(sequences, place, value):
    """The same, one token's current log-probability changed where it has a gradient."""
    changed, at = [], 0
    for sequence in sequences:
        changed.append([])
        for token in sequence:
            changed[-1].append({**token, "current": value} if at == place else token)
            at += 1
    return changed


def gradient_of(sequences, objective: Objective, width: float = 1e-6) -> list[float]:
    """Central differences; ``stopped`` stays as it is."""
    currents = [token["current"] for sequence in sequences for token in sequence]
    return [
        (
            loss_of(with_current(sequences, place, current + width), objective)
            - loss_of(with_current(sequences, place, current - width), objective)
        )
        / (2 * width)
        for place, current in enumerate(currents)
    ]
