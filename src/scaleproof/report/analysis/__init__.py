"""The sections and figures of an analysis: loss surfaces, cosines, accuracy curves and classes."""
