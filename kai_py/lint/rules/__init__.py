"""One file per subject; each rule reports and corrects one object."""
