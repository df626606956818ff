"""One module or small package for each format in which tasks are written. folders and rows hold what the formats share, registry knows every format by name, and writing writes a whole data set."""
