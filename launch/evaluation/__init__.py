"""Everything that evaluates: online (before, beside and after training), standalone (longshore evaluate), and the
comparison of evaluations.

Layers: pass_at_k, scores and attempts; results and solvers; online and standalone; comparison. The training loop
imports only online and scores.
"""
