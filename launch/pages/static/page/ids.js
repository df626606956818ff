// An episode is named with its attempt (train-g000012-s03-a0), a trajectory without; a recording as its episode.

export const trajectoryOf = (episode) => episode.replace(/-a\d+$/, "");

export const recordingName = (session) => session.trajectory;
