"""MLAcademy: learn, read and write the GPU kernels behind DeepSeek-V3.2."""

__version__ = "0.1.0"
