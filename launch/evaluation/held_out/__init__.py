"""Evaluations of a run on its held-out tasks, before, during and after training.

``held_out_evaluations`` runs those before and after, ``online_evaluator`` those during training, when ``schedule`` says
that weights are due.  ``evaluation_setup`` has what all have in common; ``evaluation_store`` keeps them on disk.
"""
