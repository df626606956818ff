// Episodes and recordings are named with their attempt (train-g000012-s03-a0), trajectories without it.

export const trajectoryOf = (episode) => episode.replace(/-a\d+$/, "");

export const recordingName = (session) => session.trajectory;
