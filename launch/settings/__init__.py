"""The settings of launch's rooms, a module for each table of the configuration.

:mod:`launch.config` composes them with the settings of actors, learner and sandbox.  They are a package of their own
because the rooms that declare them also read the whole configuration, which stands above.
"""
