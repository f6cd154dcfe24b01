"""Every class of Spark's plans that a query may be made of, parsed or analysed.

Classes of functions that are refused are not here. `functions` says why each is.
"""

from __future__ import annotations

from collections.abc import Mapping

from onceflow.errors import Fault

_WRITTEN = """
    Cube ExpressionWithUnresolvedOrdinal GroupingSets LateralColumnAliasReference
    NamedArgumentExpression
    OuterReference PipeExpression ResolvedStar Rollup TempResolvedColumn UnresolvedAlias
    UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator
    UnresolvedNamedLambdaVariable UnresolvedOrdinal UnresolvedStar UnresolvedStarExceptOrReplace
    UnresolvedWithinGroup VirtualColumn
"""
"""As the parser leaves them."""
_GLUE = """
    AggregateExpression Alias AtLeastNNonNulls AttributeReference Cast CommonExpressionDef
    CommonExpressionRef
    Exists GetArrayItem GetArrayStructFields GetMapValue GetStructField InSubquery
    KnownFloatingPointNormalized KnownNotNull KnownNullable LambdaFunction LateralSubquery
    ListQuery Literal MultiAlias NamedLambdaVariable PreciseTimestampConversion ScalarSubquery
    SemiStructuredExtract SortOrder TypedNullLiteral UpCast UpdateFields With WithField DropField
"""
"""What the analysis puts between functions."""
PYTHON = frozenset({"PythonUDAF", "PythonUDF", "PythonUDTF"})
"""Code of a `transform`, judged by its source."""
_INTERVALS = """
    DateAddInterval DateAddYMInterval DatetimeSub DivideDTInterval DivideInterval DivideYMInterval
    ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes
    ExtractANSIIntervalMonths ExtractANSIIntervalSeconds ExtractANSIIntervalYears
    ExtractIntervalDays ExtractIntervalHours ExtractIntervalMinutes ExtractIntervalMonths
    ExtractIntervalSeconds ExtractIntervalYears MultiplyDTInterval MultiplyInterval
    MultiplyYMInterval SubtractDates SubtractTimestamps TimestampAdd TimestampAddInterval
    TimestampAddYMInterval TimestampDiff
"""
_FUNCTIONS = """
    Abs Acos Acosh Add AddMonths AesDecrypt AesEncrypt And AnyValue ApproxTopK
    ApproximatePercentile ArrayAggregate ArrayAppend ArrayCompact ArrayContains ArrayDistinct
    ArrayExcept ArrayExists ArrayFilter ArrayForAll ArrayInsert ArrayIntersect ArrayJoin ArrayMax
    ArrayMin ArrayPosition ArrayPrepend ArrayRemove ArrayRepeat ArraySize ArraySort ArrayTransform
    ArrayUnion ArraysOverlap ArraysZip Ascii Asin Asinh AssertTrue Atan Atan2 Atanh Average BRound
    Base64 Between Bin BinaryPad BinaryPredicate BitAndAgg BitLength BitOrAgg BitXorAgg
    BitmapAndAgg BitmapBitPosition BitmapBucketNumber BitmapConstructAgg BitmapCount BitmapOrAgg
    BitwiseAnd BitwiseCount BitwiseGet BitwiseNot BitwiseOr BitwiseXor BoolAnd BoolOr CaseWhen
    Cbrt Ceil Chr Coalesce CollectList CollectSet Concat ConcatWs Contains Conv ConvertTimezone
    Corr Cos Cosh Cot Count CountIf CountMinSketchAgg CovPopulation CovSample Crc32 CreateArray
    CreateMap CreateNamedStruct Csc CsvToStructs CurrentDate CurrentTimeZone CurrentTimestamp
    DateAdd DateDiff DateFormatClass DateFromUnixDate DateSub DayName DayOfMonth DayOfWeek
    DayOfYear Decode Divide ElementAt Elt Encode EndsWith EqualNull EqualNullSafe EqualTo
    EulerNumber Exp Explode Expm1 Extract Factorial FindInSet First Flatten Floor FormatNumber
    FormatString FromUTCTimestamp FromUnixTime GeneratorOuter Get GetJsonObject GetTimestamp
    GreaterThan GreaterThanOrEqual Greatest Grouping GroupingID Hex HistogramNumeric HllSketchAgg
    HllSketchEstimate Hour HyperLogLogPlusPlus Hypot ILike If In InitCap Inline
    InputFileBlockLength InputFileBlockStart InputFileName IntegralDivide IsNaN IsNotNull
    IsNotUnknown IsNull IsUnknown IsValidUTF8 IsValidVariant IsVariantNull JsonObjectKeys
    JsonToStructs JsonTuple KllSketchAggBigint KllSketchAggDouble KllSketchAggFloat
    KllSketchGetNBigint KllSketchGetNDouble KllSketchGetNFloat KllSketchGetQuantileBigint
    KllSketchGetQuantileDouble KllSketchGetQuantileFloat KllSketchGetRankBigint
    KllSketchGetRankDouble KllSketchGetRankFloat KllSketchToStringBigint
    KllSketchToStringDouble KllSketchToStringFloat Kurtosis Last LastDay Least Left Length
    LengthOfJsonArray LessThan LessThanOrEqual Levenshtein Like LikeAll LikeAny ListAgg
    LocalTimestamp Log Log10 Log1p Log2 Logarithm Lower Luhncheck MakeDTInterval MakeDate
    MakeInterval MakeTimestamp MakeTimestampFromDateTime MakeTimestampNTZ MakeValidUTF8
    MakeYMInterval MapConcat MapContainsKey MapEntries MapFilter MapFromArrays MapFromEntries
    MapKeys MapValues MapZipWith Mask Max MaxBy Md5 Median MicrosToTimestamp MillisToTimestamp Min
    MinBy Minute Mode MonotonicallyIncreasingID Month MonthName MonthsBetween Multiply Murmur3Hash
    NaNvl NextDay Not NotLikeAll NotLikeAny NullIf NullIfZero Nvl Nvl2 OctetLength Or Overlay
    ParseJson ParseToDate ParseToTimestamp ParseUrl Percentile PercentileCont PercentileDisc Pi
    PivotFirst Pmod PosExplode Pow Quarter Quote RLike RaiseError Rand RandStr Randn RegExpCount
    RegExpExtract RegExpExtractAll RegExpInStr RegExpReplace RegExpSubStr RegrAvgX RegrAvgY
    RegrCount RegrIntercept RegrR2 RegrSXX RegrSXY RegrSYY RegrSlope Remainder Reverse Right Rint
    Round RoundCeil RoundFloor SchemaOfCsv SchemaOfJson SchemaOfVariant SchemaOfXml Sec
    Second SecondWithFraction SecondsToTimestamp Sentences Sequence SessionWindow Sha1 Sha2
    ShiftLeft ShiftRight ShiftRightUnsigned Shuffle Signum Sin Sinh Size Skewness Slice SortArray
    SoundEx
    SparkPartitionID SplitPart Sqrt Stack StartsWith StddevPop StddevSamp StringDecode StringInstr
    StringLPad StringLocate StringRPad StringRepeat StringReplace StringSpace StringSplit
    StringToMap StringTranslate StringTrim StringTrimBoth StringTrimLeft StringTrimRight
    StructsToCsv StructsToJson StructsToXml Substring SubstringIndex Subtract Sum Tan Tanh
    ThetaSketchAgg ThetaSketchEstimate TimeBucket TimeWindow ToBinary ToCharacter ToDegrees
    ToNumber ToRadians ToUTCTimestamp ToUnixTimestamp ToVariantObject TransformKeys
    TransformValues TruncDate TruncTimestamp TryAdd TryAesDecrypt TryDivide TryElementAt TryEval
    TryMakeInterval TryMakeTimestamp TryMakeTimestampFromDateTime TryMod TryMultiply TryParseUrl
    TrySubtract TryToBinary TryToNumber TryUrlDecode TryValidateUTF8 TypeOf UnBase64 UnaryMinus
    UnaryPositive Unhex Uniform UnixDate UnixMicros UnixMillis UnixSeconds UnixTimestamp Upper
    UrlDecode UrlEncode Uuid ValidateUTF8 VariancePop VarianceSamp VariantExplode VariantGet
    VectorCosineSimilarity VectorInnerProduct VectorL2Distance VectorNorm VectorNormalize WeekDay
    WeekOfYear WidthBucket WindowTime XPathBoolean XPathDouble XPathFloat XPathInt XPathList
    XPathLong XPathShort XPathString XmlToStructs XxHash64 Year ZeroIfNull ZipWith
"""
_OURS = frozenset({"onceflow.ParameterValue"})
EXPRESSIONS = PYTHON | _OURS | frozenset(f"{_WRITTEN} {_GLUE} {_INTERVALS} {_FUNCTIONS}".split())
"""Classes of expressions that may be used."""

_OPERATORS = """
    Aggregate CollectMetrics DataFrameDropColumns Deduplicate
    DeduplicateWithinWatermark Distinct EventTimeWatermark Except Expand Filter Generate GlobalLimit
    Intersect Join LateralJoin LocalLimit LocalRelation Offset OneRowRelation Pivot PipeOperator
    Project Range Repartition RepartitionByExpression ResolvedInlineTable Sample Sort
    StreamingRelationV2 SubqueryAlias Tail Union Unpivot View
    UnresolvedHaving UnresolvedInlineTable UnresolvedQualify UnresolvedRelation
    UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction
    ArrowEvalPython ArrowEvalPythonUDTF BatchEvalPython BatchEvalPythonUDTF FlatMapCoGroupsInArrow
    FlatMapCoGroupsInPandas FlatMapGroupsInArrow FlatMapGroupsInPandas
    FlatMapGroupsInPandasWithState MapInArrow MapInPandas TransformWithStateInPySpark
"""
OPERATORS = frozenset({*_OPERATORS.split(), "onceflow.ReferenceRelation"})
"""Operators that may be used. Tables and files of a `transform` are judged as ND-SOURCE."""

OVER = Fault(
    "functions OVER (...) are not possible on a stream",
    suggestion="Aggregate by window(...) over the event time.",
)
_COMPUTED_NAME = Fault("IDENTIFIER() may not be used", suggestion="Write the name itself.")
_PARAMETER = Fault("a query has no parameters", suggestion="Write the value itself.")
FAULTS: Mapping[str, Fault] = {
    "ExpressionWithUnresolvedIdentifier": _COMPUTED_NAME,
    "PlanWithUnresolvedIdentifier": _COMPUTED_NAME,
    "NamedParameter": _PARAMETER,
    "PosParameter": _PARAMETER,
    "RelationTimeTravel": Fault("a source has no versions"),
    "ScriptTransformation": Fault(
        "TRANSFORM may not be used: it runs a program", suggestion="Compute it in SQL."
    ),
    "UnionLoop": Fault("a recursive query is not possible on a stream"),
    "UnresolvedEventTimeWatermark": Fault(
        "WATERMARK may not be used", suggestion="Give the source `event_time` and `lateness`."
    ),
    "UnresolvedHint": Fault(
        "hints may not be used: they change where rows are computed, and so their order",
        suggestion="Remove it.",
    ),
    "UnresolvedWith": Fault(
        "WITH is not possible yet", suggestion="Write it as a subquery: FROM (SELECT ...) AS name."
    ),
    **dict.fromkeys(
        (
            "CurrentRow",
            "SpecifiedWindowFrame",
            "UnboundedFollowing",
            "UnboundedPreceding",
            "UnresolvedWindowExpression",
            "UnspecifiedFrame",
            "Window",
            "WindowExpression",
            "WindowSpecDefinition",
            "WindowSpecReference",
            "WithWindowDefinition",
        ),
        OVER,
    ),
}
"""Class that is refused in its own words."""
