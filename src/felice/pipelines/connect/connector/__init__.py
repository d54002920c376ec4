"""What a connector is: the classes that a connector's author extends."""
