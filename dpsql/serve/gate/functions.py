"""The functions that analysts may call: a reviewed list. A function that is not on it is refused by its name.

Made by looking at every function of DuckDB 1.5.5 (`duckdb_functions()`), and of what a source may compute, which is more narrowly
chosen (`dpsql.algebra.functions`). On it is what computes a value from its arguments alone:
nothing here reads a table, a file, a setting, a variable, a sequence, storage statistics, the session or the text of a statement,
calls another function by a name that is a value (`list_aggregate`), waits, writes, raises at will (`error`), or works with the
square of its arguments' length (`levenshtein`): DuckDB cannot stop inside of a call. Sizes: `dpsql.serve.gate.sizes`.
"""

from __future__ import annotations

from dpsql.algebra.aggregates import AGGREGATES, WINDOWS
from dpsql.algebra.functions import FUNCTIONS as SCALARS

OPERATORS = frozenset({
    "!__postfix", "!~~", "!~~*", "%", "&", "&&", "*", "**", "+", "-", "->", "->>", "/", "//", "<->", "<<", "<=>", "<@", ">>", "@",
    "@>", "^", "^@", "|", "||", "~", "~~", "~~*", "~~~",
})  # fmt: skip
"""Functions that are written as signs."""

FUNCTIONS = SCALARS.keys() | AGGREGATES.keys() | WINDOWS.keys() | frozenset({
    "acosh", "add", "age", "ago", "apply", "array_append", "array_apply", "array_cat", "array_concat", "array_contains",
    "array_cosine_distance", "array_cosine_similarity", "array_cross_product", "array_distance", "array_distinct",
    "array_dot_product", "array_extract", "array_filter", "array_grade_up", "array_has", "array_has_all", "array_has_any",
    "array_indexof", "array_inner_product", "array_intersect", "array_length", "array_negative_dot_product",
    "array_negative_inner_product", "array_pop_back", "array_pop_front", "array_position", "array_prepend", "array_push_back",
    "array_push_front", "array_reduce", "array_resize", "array_reverse", "array_reverse_sort", "array_select", "array_slice",
    "array_sort", "array_to_json", "array_to_string", "array_to_string_comma_default", "array_transform", "array_unique",
    "array_value", "array_where", "array_zip", "bar", "base64", "bin", "bit_count", "bit_position", "bitstring", "cardinality",
    "chr", "cot", "current_date", "current_localtime", "current_localtimestamp", "date_add", "days_in_month", "decode",
    "divide", "element_at", "encode", "enum_code", "enum_first", "enum_last", "enum_range", "enum_range_boundary", "epoch_ms",
    "epoch_ns", "epoch_us", "equi_width_bins", "even", "factorial", "fdiv", "fill", "filter", "flatten", "fmod", "format",
    "format_bytes", "formatreadabledecimalsize", "formatreadablesize", "from_base64", "from_binary", "from_hex", "from_json",
    "from_json_strict", "gamma", "gcd", "gen_random_uuid", "generate_series", "generate_subscripts", "get_bit",
    "get_current_time", "get_current_timestamp", "grade_up", "greatest_common_divisor", "hamming", "hash", "hex",
    "ilike_escape", "jaccard", "json", "json_array", "json_array_length", "json_contains", "json_exists", "json_extract",
    "json_extract_path", "json_extract_path_text", "json_extract_string", "json_keys", "json_merge_patch", "json_object",
    "json_pretty", "json_quote", "json_structure", "json_transform", "json_transform_strict", "json_type", "json_valid",
    "json_value", "julian", "lcm", "least_common_multiple", "left_grapheme", "length_grapheme", "lgamma", "like_escape",
    "list_any_value", "list_append", "list_apply", "list_approx_count_distinct", "list_avg", "list_bit_and", "list_bit_or",
    "list_bit_xor", "list_bool_and", "list_bool_or", "list_cat", "list_concat", "list_cosine_distance",
    "list_cosine_similarity", "list_count", "list_distance", "list_distinct", "list_dot_product", "list_element",
    "list_entropy", "list_filter", "list_first", "list_grade_up", "list_has", "list_has_all", "list_has_any", "list_histogram",
    "list_indexof", "list_inner_product", "list_intersect", "list_kurtosis", "list_kurtosis_pop", "list_last", "list_mad",
    "list_max", "list_median", "list_min", "list_mode", "list_negative_dot_product", "list_negative_inner_product", "list_pack",
    "list_position", "list_prepend", "list_product", "list_reduce", "list_resize", "list_reverse", "list_reverse_sort",
    "list_select", "list_sem", "list_skewness", "list_slice", "list_sort", "list_stddev_pop", "list_stddev_samp",
    "list_string_agg", "list_sum", "list_transform", "list_unique", "list_value", "list_var_pop", "list_var_samp", "list_where",
    "list_zip", "lpad", "make_date", "make_time", "make_timestamp", "make_timestamp_ms", "make_timestamp_ns",
    "make_timestamptz", "map", "map_concat", "map_contains", "map_contains_entry", "map_contains_value", "map_entries",
    "map_extract", "map_extract_value", "map_from_entries", "map_keys", "map_values", "md5_number", "md5_number_lower",
    "md5_number_upper", "mismatches", "multiply", "nanosecond", "nextafter", "not_ilike_escape", "not_like_escape", "now",
    "octet_length", "parse_formatted_bytes", "parse_path", "position", "printf", "random", "range", "reduce", "regexp_escape",
    "regexp_extract_all", "regexp_split_to_array", "regexp_split_to_table", "repeat", "right_grapheme", "round_even",
    "roundbankers", "row", "row_to_json", "rpad", "set_bit", "split", "str_split", "str_split_regex", "string_split",
    "string_split_regex", "string_to_array", "struct_concat", "struct_contains", "struct_extract_at", "struct_has",
    "struct_indexof", "struct_insert", "struct_keys", "struct_pack", "struct_position", "struct_update", "struct_values",
    "substring_grapheme", "subtract", "sum_no_overflow", "time_bucket", "timezone_hour", "timezone_minute", "to_base",
    "to_base64", "to_binary", "to_centuries", "to_days", "to_decades", "to_hex", "to_hours", "to_json", "to_microseconds",
    "to_millennia", "to_milliseconds", "to_minutes", "to_months", "to_quarters", "to_seconds", "to_timestamp", "to_weeks",
    "to_years", "today", "typeof", "unbin", "unhex", "union_extract", "union_tag", "union_value", "unnest", "url_decode",
    "url_encode", "uuid", "uuid_extract_timestamp", "uuid_extract_version", "uuidv4", "uuidv7", "wavg", "weighted_avg", "xor",
})  # fmt: skip
"""Scalar functions, aggregates, window functions, and macros that DuckDB ships: those of dpsql's own tables, and others."""

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "json_each", "json_tree"})
"""Table functions of their arguments alone."""

TYPES = frozenset({
    "array", "bigint", "bignum", "binary", "bit", "bitstring", "blob", "bool", "boolean", "bpchar", "bytea", "char", "date",
    "datetime", "dec", "decimal", "double", "float", "float4", "float8", "guid", "hugeint", "int", "int1", "int128",
    "int16", "int2", "int32", "int4", "int64", "int8", "integer", "integer literal", "integer_literal", "integral",
    "interval", "json", "list", "logical", "long", "map", "null", "numeric", "nvarchar", "oid", "real", "row", "short",
    "signed", "smallint", "sqlnull", "string", "string_literal", "struct", "text", "time", "time with time zone", "time_ns",
    "timestamp", "timestamp with time zone", "timestamp_ms", "timestamp_ns", "timestamp_s", "timestamp_us", "timestamptz",
    "timetz", "tinyint", "tuple", "ubigint", "uhugeint", "uint128", "uint16", "uint32", "uint64", "uint8", "uinteger",
    "union", "usmallint", "utinyint", "uuid", "varbinary", "varchar", "varint",
})  # fmt: skip
"""Types that DuckDB ships; a type that the custodian made is refused: its labels may be values of people."""
