"""Names for options, verbs and hooks of the command."""

from shiftsvd.commands.hooks import Hooks, Run, aligned
from shiftsvd.commands.options import need_folder, option_of, quoted, refuse_with_device, worded
from shiftsvd.commands.settings import Settings, table_format
from shiftsvd.commands.tables import Block, Table, Write, component_names, csv_table, texts_for, write_rows
from shiftsvd.commands.writing import as_text, model_in, numbers, of_gaps
