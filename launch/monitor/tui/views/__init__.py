"""The widgets that show a run in the terminal, each reading in a thread what it shows. base is the ground of all,
header and listing are shared, the others are one view each; a view never imports the app or a screen."""
