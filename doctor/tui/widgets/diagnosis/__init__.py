"""The list of findings and the page of one finding."""
