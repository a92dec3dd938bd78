"""Names for kinds of models in files."""

from shiftsvd.model_file.coding import code, decode
from shiftsvd.model_file.kinds import (
    KINDS,
    ByName,
    Kind,
    Sizes,
    Value,
    count,
    fields,
    instance_of,
    must,
    numbers,
    same_check,
    texts,
)
