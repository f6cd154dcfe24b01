"""Every function of Spark SQL, by category.

A new version of Spark may bring a function that no list has. It is refused, and
`tests/spark/test_allow_list.py` fails until it is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from textwrap import fill


class Category(StrEnum):
    """Category of a function."""

    PLAIN = "plain"
    LARGE_VALUES = "large values"
    MANY_ROWS = "many rows"
    PATTERNS = "patterns"
    OPTIONS = "options"
    REPLAY = "replay"
    CLOCK = "clock"
    MACHINE = "machine"
    OUTSIDE = "outside"
    NO_STREAM = "no stream"
    UNJUDGED = "unjudged"


ALLOWED: Mapping[Category, str] = {
    Category.PLAIN: "computes from its arguments, and its cost is bounded by their size",
    Category.LARGE_VALUES: "its result may be much larger than its arguments",
    Category.MANY_ROWS: "makes many rows of one",
    Category.PATTERNS: "matches a pattern, which may take long",
    Category.OPTIONS: "takes a schema and options, which must be literals",
    Category.REPLAY: "a replay may compute something else: see [determinism.md](determinism.md)",
}
"""Categories that may be used, and why each is one."""
REFUSED: Mapping[Category, str] = {
    Category.CLOCK: "reads a clock that a replay does not set back",
    Category.MACHINE: "tells about the process or the installation, which may differ at a replay",
    Category.OUTSIDE: "reaches outside of the query",
    Category.NO_STREAM: "cannot run on a stream",
    Category.UNJUDGED: "has not been judged",
}
"""Categories that are refused, and why."""

_PLAIN = """
    ! % & * + - / < << <= <=> = == > >= >> >>> ^ | ~ and or not in between abs acos acosh asin
    asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees div e exp
    expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod negative pi pmod
    positive pow power radians rint round sec sign signum sin sinh sqrt tan tanh try_add
    try_divide try_mod try_multiply try_subtract unhex width_bucket bit_count bit_get getbit
    shiftleft shiftright shiftrightunsigned bitmap_bit_position bitmap_bucket_number
    bitmap_count bigint binary boolean cast date decimal double float int smallint string
    timestamp tinyint to_binary to_char to_number to_varchar try_to_binary try_to_number typeof
    coalesce equal_null if ifnull isnan isnotnull isnull nanvl nullif nullifzero nvl nvl2 when
    zeroifnull assert_true raise_error add_months convert_timezone curdate current_date
    current_timestamp current_timezone date_add date_diff date_format date_from_unix_date
    date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek
    dayofyear extract from_unixtime from_utc_timestamp hour last_day localtimestamp make_date
    make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz
    make_ym_interval minute month monthname months_between next_day quarter second
    session_window time_bucket timestamp_micros timestamp_millis timestamp_seconds to_date
    to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc
    try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
    try_to_date try_to_timestamp unix_date unix_micros unix_millis unix_seconds unix_timestamp
    weekday weekofyear window_time year ascii base64 bit_length btrim char char_length
    character_length chr contains decode elt encode endswith find_in_set initcap instr
    is_valid_utf8 lcase left len length levenshtein locate lower ltrim luhn_check
    make_valid_utf8 mask octet_length position quote right rtrim soundex split_part startswith
    substr substring substring_index translate trim try_validate_utf8 ucase unbase64 upper
    validate_utf8 crc32 hash md5 sha sha1 sha2 xxhash64 aes_decrypt try_aes_decrypt parse_url
    try_parse_url try_url_decode url_decode url_encode array array_append array_compact
    array_contains array_distinct array_except array_intersect array_max array_min
    array_position array_prepend array_remove array_size array_sort array_union arrays_overlap
    arrays_zip cardinality element_at get reverse size slice sort_array try_element_at exists
    filter forall transform zip_with map map_concat map_contains_key map_entries map_filter
    map_from_arrays map_from_entries map_keys map_values map_zip_with transform_keys
    transform_values named_struct struct get_json_object json_array_length json_object_keys
    json_tuple is_valid_variant is_variant_null parse_json schema_of_variant to_variant_object
    try_parse_json try_variant_get variant_get vector_cosine_similarity vector_inner_product
    vector_l2_distance vector_norm vector_normalize parameter any approx_count_distinct bit_and
    bit_or bit_xor bitmap_and_agg bitmap_construct_agg bitmap_or_agg bool_and bool_or count count_if
    every grouping grouping_id max median min percentile percentile_cont percentile_disc
    regr_count some hll_sketch_estimate kll_sketch_get_n_bigint kll_sketch_get_n_double
    kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
    kll_sketch_get_rank_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float theta_sketch_estimate
"""
_LARGE_VALUES = """
    aggregate array_insert array_join array_repeat concat concat_ws count_min_sketch flatten
    format_number format_string lpad overlay printf reduce repeat replace rpad sequence space
"""
_MANY_ROWS = """
    explode explode_outer inline inline_outer posexplode posexplode_outer range stack
    variant_explode variant_explode_outer window
"""
_PATTERNS = """
    ilike like regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like
    regexp_replace regexp_substr rlike sentences split str_to_map
    xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short
    xpath_string
"""
_OPTIONS = """
    from_csv from_json from_xml schema_of_csv schema_of_json schema_of_xml to_csv to_json to_xml
"""
_REPLAY = """
    aes_encrypt rand randn random randstr shuffle uniform uuid
    input_file_block_length input_file_block_start input_file_name monotonically_increasing_id
    spark_partition_id
    any_value approx_percentile approx_top_k array_agg avg collect_list collect_set corr covar_pop
    covar_samp first first_value histogram_numeric hll_sketch_agg kll_sketch_agg_bigint
    kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max_by mean min_by
    mode percentile_approx regr_avgx regr_avgy regr_intercept regr_r2 regr_slope regr_sxx regr_sxy
    regr_syy skewness std stddev stddev_pop stddev_samp string_agg sum theta_sketch_agg try_avg
    try_sum var_pop var_samp variance
"""
_CLOCK = "current_time now"
_MACHINE = """
    collations current_catalog current_database current_path current_schema current_user
    session_user sql_keywords user version
"""
_OUTSIDE = """
    from_avro from_protobuf java_method python_worker_logs reflect schema_of_avro to_avro
    to_protobuf try_reflect
"""
_NO_STREAM = """
    cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number
"""
_UNJUDGED = """
    collate collation measure make_time time time_diff time_from_micros time_from_millis
    time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc to_time
    try_to_time schema_of_variant_agg vector_avg vector_sum st_asbinary st_geogfromwkb
    st_geomfromwkb st_setsrid st_srid approx_top_k_accumulate approx_top_k_combine
    approx_top_k_estimate hll_union hll_union_agg kll_merge_agg_bigint kll_merge_agg_double
    kll_merge_agg_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
    theta_difference theta_intersection theta_intersection_agg theta_union theta_union_agg
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double
    tuple_difference_theta_integer tuple_intersection_agg_double tuple_intersection_agg_integer
    tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
    tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer
    tuple_union_theta_double tuple_union_theta_integer
"""
_LISTS: Mapping[Category, str] = {
    Category.PLAIN: _PLAIN,
    Category.LARGE_VALUES: _LARGE_VALUES,
    Category.MANY_ROWS: _MANY_ROWS,
    Category.PATTERNS: _PATTERNS,
    Category.OPTIONS: _OPTIONS,
    Category.REPLAY: _REPLAY,
    Category.CLOCK: _CLOCK,
    Category.MACHINE: _MACHINE,
    Category.OUTSIDE: _OUTSIDE,
    Category.NO_STREAM: _NO_STREAM,
    Category.UNJUDGED: _UNJUDGED,
}

FUNCTIONS: Mapping[str, Category] = {
    name: category for category, names in _LISTS.items() for name in names.split()
}
"""Function, as SQL calls it -> its category."""

_JAVA = "calls any Java code"
_AVRO = "needs a module that is not installed; `format: avro` decodes Avro"
_DESCRIPTOR = "reads a descriptor file"
_USER = "tells the user that the process runs as"
_TIME = "is of the type TIME, which this version of Spark does not finish"
_SKETCH = "is of sketches whose results have not been shown to be the same at a replay"
REASONS: Mapping[str, str] = {
    "collate": "compares text by rules that differ between versions of Spark",
    "collations": "lists what this version of Spark knows",
    "current_user": _USER,
    "from_avro": _AVRO,
    "from_protobuf": _DESCRIPTOR,
    "java_method": _JAVA,
    "measure": "is of metric views, which a query cannot read",
    "now": f"{REFUSED[Category.CLOCK]}: Spark keeps only current_timestamp() for a batch",
    "python_worker_logs": "reads the logs of Python processes",
    "reflect": _JAVA,
    "schema_of_avro": _AVRO,
    "session_user": _USER,
    "sql_keywords": "lists what this version of Spark knows",
    "to_avro": _AVRO,
    "to_protobuf": _DESCRIPTOR,
    "try_reflect": _JAVA,
    "user": _USER,
    "version": "tells the version of Spark",
    **{name: _TIME for name in FUNCTIONS if name.startswith(("time_", "make_time"))},
    **dict.fromkeys(("time", "to_time", "try_to_time"), _TIME),
    **{
        name: _SKETCH
        for name, category in FUNCTIONS.items()
        if category is Category.UNJUDGED
        and name.startswith(("approx_", "hll_", "kll_", "th", "tu"))
    },
}
"""Function -> why it is refused, where that can be said better than for its category."""

_FORMATS = "dateformat timestampformat timestampntzformat locale timezone"
_PARSING = f"mode columnnameofcorruptrecord {_FORMATS}"
_JSON = f"""
    primitivesasstring prefersdecimal allowcomments allowunquotedfieldnames allowsinglequotes
    allownumericleadingzeros allownonnumericnumbers allowbackslashescapinganycharacter
    allowunquotedcontrolchars dropfieldifallnull ignorenullfields pretty sortkeys {_PARSING}
"""
_CSV = f"""
    sep delimiter quote escape comment nullvalue nanvalue positiveinf negativeinf emptyvalue
    ignoreleadingwhitespace ignoretrailingwhitespace quoteall escapequotes
    chartoescapequoteescaping {_PARSING}
"""
_XML = f"""
    rowtag roottag attributeprefix valuetag excludeattribute ignorenamespace
    ignoresurroundingspaces nullvalue declaration arrayelementname {_PARSING}
"""
OPTIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(options.split())
    for suffix, options in (("json", _JSON), ("csv", _CSV), ("xml", _XML))
    for name in (f"from_{suffix}", f"to_{suffix}", f"schema_of_{suffix}")
}
"""Function -> its options that may be used, in lower case: Spark does not look at the case."""


def judged(name: str) -> Category:
    """A function and its category.

    Args:
        name: as SQL calls it.
    """
    return FUNCTIONS.get(name.lower(), Category.UNJUDGED)


def reason(name: str) -> str:
    """Why a function that is refused is refused, in one clause; also if it is in one form only."""
    return REASONS.get(name.lower()) or REFUSED.get(
        judged(name), "has not been judged in this form"
    )


def reference() -> str:
    """Every function with its category, for docs/security.md."""
    allowed = [_paragraph(category, f"Allowed: {why}.") for category, why in ALLOWED.items()]
    refused = [_paragraph(category, f"Refused: it {why}.") for category, why in REFUSED.items()]
    return "\n".join([*allowed, *refused])


def _paragraph(category: Category, why: str) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(_LISTS[category].split()))
    text = f"- **{category.value}** ({len(_LISTS[category].split())}). {why} {names}"
    return fill(text, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
