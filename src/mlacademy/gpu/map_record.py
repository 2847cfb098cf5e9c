"""The emulator's form of a tensor map: 128 plain bytes, little-endian, without pointers into themselves.

A kernel may copy the record, patch it with ``tensormap.replace`` and store it elsewhere, as with the driver's opaque
form. Fields that ``tensormap.replace`` edits hold exactly the value that the instruction is given.

====== ===== ===============================================================================================
offset bytes field
====== ===== ===============================================================================================
0      8     magic: the ASCII letters ``MLATMAP1``
8      8     global_address
16     1     rank − 1
17     1     elemtype, the code of ``tensormap.replace`` (uint8 0 … 16u6_align16b 15)
18     1     interleave_layout: none 0, 16B 1, 32B 2
19     1     swizzle_mode: none 0, 32B 1, 64B 2, 128B 3
20     1     swizzle_atomicity: 16B 0, 32B 1, 32B with 8-byte flip 2, 64B 3
21     1     fill_mode: zeros 0, NaN 1
22     1     L2 promotion: none 0, 64B 1, 128B 2, 256B 3 (no effect)
23     1     mode: tiled 0, im2col 1
24     20    global_dim[5], uint32, elements, innermost first; 0 stands for 2^32; unused axes hold 1
44     10    box_dim[5], uint16, elements; unused axes hold 1; of im2col: channels a pixel, pixels a column
54     5     element_stride[5], uint8; unused axes hold 1
59     5     zero
64     32    global_stride[4], uint64, bytes, of axes 1 to 4; unused axes hold 0
96     8     change: the number of the last ``tensormap.replace``; 0 in a map as the host made it
104    6     lower_corner[3], int16, of im2col: where the bounding box of axes 1 to 3 begins
110    6     upper_corner[3], int16, of im2col: where it ends, from the tensor's last element
116    12    zero
====== ===== ===============================================================================================
"""

from __future__ import annotations

import struct

from mlacademy.gpu.tensor_map import INTERLEAVES, L2_PROMOTIONS, OOB_FILLS, SWIZZLES, Im2colMap, TensorMap

MAGIC = b"MLATMAP1"
RECORD = struct.Struct("<8sQ8B5I5H5B5x4Q8x6h12x")
SIZE = 128
assert RECORD.size == SIZE

_MODE_AND_ATOMICITY = {0: (0, 0), 1: (1, 0), 2: (2, 0), 3: (3, 0), 4: (3, 1), 5: (3, 2), 6: (3, 3)}
"""Driver's swizzle code → (swizzle_mode, swizzle_atomicity) of ``tensormap.replace``."""


def encode(tensor_map: TensorMap, address: int) -> bytes:
    """The 128 bytes of a map whose tensor lies at ``address``."""
    unused = 5 - tensor_map.rank
    mode, atomicity = _MODE_AND_ATOMICITY[SWIZZLES[tensor_map.swizzle]]
    box, corners = [*tensor_map.box, *[1] * unused], [0] * 6
    if isinstance(tensor_map, Im2colMap):
        box = [*tensor_map.box, 1, 1, 1]
        for side, corner in enumerate((tensor_map.lower_corner, tensor_map.upper_corner)):
            corners[3 * side : 3 * side + len(corner)] = corner
    return RECORD.pack(
        MAGIC,
        address,
        tensor_map.rank - 1,
        tensor_map.element.ptx_code,
        INTERLEAVES[tensor_map.interleave],
        mode,
        atomicity,
        OOB_FILLS[tensor_map.oob_fill],
        L2_PROMOTIONS[tensor_map.l2_promotion],
        int(isinstance(tensor_map, Im2colMap)),
        *(size & 0xFFFF_FFFF for size in tensor_map.dims),
        *[1] * unused,
        *box,
        *tensor_map.element_strides,
        *[1] * unused,
        *tensor_map.strides,
        *[0] * unused,
        *corners,
    )
