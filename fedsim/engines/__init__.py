"""The parts of engines that know nothing of scenarios: grids, the memory of devices, Flower's SuperLink."""
