"""The ground floor: settings, seeds, files, errors and progress. Imports nothing else of the project."""
