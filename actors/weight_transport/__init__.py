"""How weights come to hosts other than the learner's: as what changed, into a copy that each host keeps."""
