// An episode is named with its attempt (train-g000012-s03-a0), a trajectory without; its recording has the episode's name.

export const trajectoryOf = (episode) => episode.replace(/-a\d+$/, "");

export const recordingName = (session) => session.trajectory;
