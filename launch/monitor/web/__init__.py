"""The monitor's HTTP side: ``app`` puts it together, ``runs`` keeps runs followed, ``api`` answers about them and
``streams`` goes on answering; ``page`` is what the page at ``/`` asks for; ``parameters`` reads what is asked,
``access`` who may ask."""
