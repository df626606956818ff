"""Weight transport to hosts other than the learner's: deltas or broadcasts, into a copy that each host keeps."""
