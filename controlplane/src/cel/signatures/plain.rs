//! Operators, conversions, strings and lists.

use super::super::cost::Charge;
use super::super::library::{convert, lists, operators, strings};
use super::super::types::T;
use super::{LIST, Overload, TEXTS, global, member};

use Charge::{Append, Compare, Concatenate, Contains, Join, Match, One, Replace, Scan, Split, Start, Twice, Visit};
use T::{A, B, Bool, Bytes, Double, Duration, Dyn, Int, Text, Time, Uint};

macro_rules! ordered {
    ($name:literal, $run:path) => {
        [
            global($name, &[Bool, Bool], Bool, One, $run),
            global($name, &[Int, Int], Bool, One, $run),
            global($name, &[Int, Uint], Bool, One, $run),
            global($name, &[Int, Double], Bool, One, $run),
            global($name, &[Uint, Uint], Bool, One, $run),
            global($name, &[Uint, Int], Bool, One, $run),
            global($name, &[Uint, Double], Bool, One, $run),
            global($name, &[Double, Double], Bool, One, $run),
            global($name, &[Double, Int], Bool, One, $run),
            global($name, &[Double, Uint], Bool, One, $run),
            global($name, &[Text, Text], Bool, Compare, $run),
            global($name, &[Bytes, Bytes], Bool, Compare, $run),
            global($name, &[Duration, Duration], Bool, One, $run),
            global($name, &[Time, Time], Bool, One, $run),
        ]
    };
}

macro_rules! calculated {
    ($name:literal, $run:path) => {
        [
            global($name, &[Int, Int], Int, One, $run),
            global($name, &[Uint, Uint], Uint, One, $run),
            global($name, &[Double, Double], Double, One, $run),
        ]
    };
}

static LESS: [Overload; 14] = ordered!("_<_", operators::less);
static LESS_EQUAL: [Overload; 14] = ordered!("_<=_", operators::less_equal);
static GREATER: [Overload; 14] = ordered!("_>_", operators::greater);
static GREATER_EQUAL: [Overload; 14] = ordered!("_>=_", operators::greater_equal);
static PLUS: [Overload; 3] = calculated!("_+_", operators::plus);
static MINUS: [Overload; 3] = calculated!("_-_", operators::minus);
static TIMES: [Overload; 3] = calculated!("_*_", operators::times);
static OVER: [Overload; 3] = calculated!("_/_", operators::over);

static OTHERS: [Overload; 125] = [
    global("_==_", &[A, A], Bool, Compare, operators::equal),
    global("_!=_", &[A, A], Bool, Compare, operators::not_equal),
    global("@in", &[A, LIST], Bool, Charge::In, operators::in_list),
    global("@in", &[A, T::Map(&A, &B)], Bool, One, operators::in_map),
    global("!_", &[Bool], Bool, One, operators::not),
    global("-_", &[Int], Int, One, operators::negative),
    global("-_", &[Double], Double, One, operators::negative),
    global("_%_", &[Int, Int], Int, One, operators::modulo),
    global("_%_", &[Uint, Uint], Uint, One, operators::modulo),
    global("_+_", &[Text, Text], Text, Concatenate, operators::plus),
    global("_+_", &[Bytes, Bytes], Bytes, Concatenate, operators::plus),
    global("_+_", &[LIST, LIST], LIST, Append, lists::append),
    global("_+_", &[Time, Duration], Time, One, operators::plus),
    global("_+_", &[Duration, Time], Time, One, operators::plus),
    global("_+_", &[Duration, Duration], Duration, One, operators::plus),
    global("_-_", &[Time, Time], Duration, One, operators::minus),
    global("_-_", &[Time, Duration], Time, One, operators::minus),
    global("_-_", &[Duration, Duration], Duration, One, operators::minus),
    global("size", &[Text], Int, One, convert::size),
    global("size", &[Bytes], Int, One, convert::size),
    global("size", &[LIST], Int, One, convert::size),
    global("size", &[T::Map(&A, &B)], Int, One, convert::size),
    member("size", &[Text], Int, One, convert::size),
    member("size", &[Bytes], Int, One, convert::size),
    member("size", &[LIST], Int, One, convert::size),
    member("size", &[T::Map(&A, &B)], Int, One, convert::size),
    global("type", &[A], T::Type, One, convert::type_of),
    global("int", &[Int], Int, One, convert::int),
    global("int", &[Uint], Int, One, convert::int),
    global("int", &[Double], Int, One, convert::int),
    global("int", &[Text], Int, One, convert::int),
    global("int", &[Time], Int, One, convert::int),
    global("int", &[Duration], Int, One, convert::int),
    global("uint", &[Uint], Uint, One, convert::uint),
    global("uint", &[Int], Uint, One, convert::uint),
    global("uint", &[Double], Uint, One, convert::uint),
    global("uint", &[Text], Uint, One, convert::uint),
    global("double", &[Double], Double, One, convert::double),
    global("double", &[Int], Double, One, convert::double),
    global("double", &[Uint], Double, One, convert::double),
    global("double", &[Text], Double, One, convert::double),
    global("bool", &[Bool], Bool, One, convert::boolean),
    global("bool", &[Text], Bool, One, convert::boolean),
    global("string", &[Text], Text, One, convert::string),
    global("string", &[Bool], Text, One, convert::string),
    global("string", &[Int], Text, One, convert::string),
    global("string", &[Uint], Text, One, convert::string),
    global("string", &[Double], Text, One, convert::string),
    global("string", &[Bytes], Text, Scan(0), convert::string),
    global("string", &[Time], Text, One, convert::string),
    global("string", &[Duration], Text, One, convert::string),
    global("string", &[super::IP], Text, One, convert::string),
    global("string", &[super::CIDR], Text, One, convert::string),
    global("bytes", &[Bytes], Bytes, One, convert::bytes),
    global("bytes", &[Text], Bytes, Scan(0), convert::bytes),
    global("duration", &[Duration], Duration, One, convert::duration),
    global("duration", &[Text], Duration, One, convert::duration),
    global("timestamp", &[Time], Time, One, convert::timestamp),
    global("timestamp", &[Text], Time, One, convert::timestamp),
    global("timestamp", &[Int], Time, One, convert::timestamp),
    member("contains", &[Text, Text], Bool, Contains, strings::contains),
    member("startsWith", &[Text, Text], Bool, Start, strings::starts_with),
    member("endsWith", &[Text, Text], Bool, Start, strings::ends_with),
    member("matches", &[Text, Text], Bool, Match, strings::matches),
    global("matches", &[Text, Text], Bool, Match, strings::matches),
    member("find", &[Text, Text], Text, Match, strings::find),
    member("findAll", &[Text, Text], TEXTS, Match, strings::find_all),
    member("findAll", &[Text, Text, Int], TEXTS, Match, strings::find_all),
    member("charAt", &[Text, Int], Text, One, strings::char_at),
    member("indexOf", &[Text, Text], Int, Visit, strings::index_of),
    member("indexOf", &[Text, Text, Int], Int, Visit, strings::index_of),
    member("lastIndexOf", &[Text, Text], Int, Visit, strings::last_index_of),
    member("lastIndexOf", &[Text, Text, Int], Int, Visit, strings::last_index_of),
    member("lowerAscii", &[Text], Text, Scan(0), strings::lower),
    member("upperAscii", &[Text], Text, Scan(0), strings::upper),
    member("trim", &[Text], Text, Scan(0), strings::trim),
    member("substring", &[Text, Int], Text, Scan(0), strings::substring),
    member("substring", &[Text, Int, Int], Text, Scan(0), strings::substring),
    member("replace", &[Text, Text, Text], Text, Replace, strings::replace),
    member("replace", &[Text, Text, Text, Int], Text, Replace, strings::replace),
    member("split", &[Text, Text], TEXTS, Split, strings::split),
    member("split", &[Text, Text, Int], TEXTS, Split, strings::split),
    member("join", &[TEXTS], Text, Join, strings::join),
    member("join", &[TEXTS, Text], Text, Join, strings::join),
    global("strings.quote", &[Text], Text, Twice(0), strings::quote),
    member("format", &[Text, T::List(&Dyn)], Text, Twice(0), strings::format),
    member("isSorted", &[LIST], Bool, Visit, lists::is_sorted),
    member("sum", &[T::List(&Int)], Int, Visit, lists::sum),
    member("sum", &[T::List(&Uint)], Uint, Visit, lists::sum),
    member("sum", &[T::List(&Double)], Double, Visit, lists::sum),
    member("sum", &[T::List(&Duration)], Duration, Visit, lists::sum),
    member("max", &[LIST], A, Visit, lists::max),
    member("min", &[LIST], A, Visit, lists::min),
    member("indexOf", &[LIST, A], Int, Visit, lists::index_of),
    member("lastIndexOf", &[LIST, A], Int, Visit, lists::last_index_of),
    member("includes", &[LIST, A], Bool, Visit, lists::includes),
    member("slice", &[LIST, Int, Int], LIST, One, lists::slice),
    member("distinct", &[LIST], LIST, Visit, lists::distinct),
    member("reverse", &[LIST], LIST, Visit, lists::reverse),
    member("sort", &[LIST], LIST, Visit, lists::sort),
    member("first", &[LIST], T::Optional(&A), One, lists::first),
    member("last", &[LIST], T::Optional(&A), One, lists::last),
    global("lists.range", &[Int], T::List(&Int), One, lists::range),
    global("sets.contains", &[LIST, LIST], Bool, Visit, lists::set_contains),
    global("sets.equivalent", &[LIST, LIST], Bool, Visit, lists::set_equivalent),
    global("sets.intersects", &[LIST, LIST], Bool, Visit, lists::set_intersects),
    global("optional.of", &[A], T::Optional(&A), One, convert::optional_of),
    global("optional.none", &[], T::Optional(&Dyn), One, convert::optional_none),
    global(
        "optional.ofNonZeroValue",
        &[A],
        T::Optional(&A),
        One,
        convert::optional_of_non_zero,
    ),
    member("value", &[T::Optional(&A)], A, One, convert::optional_value),
    member("hasValue", &[T::Optional(&A)], Bool, One, convert::optional_has_value),
    member("getFullYear", &[Time], Int, One, convert::year),
    member("getMonth", &[Time], Int, One, convert::month),
    member("getDayOfYear", &[Time], Int, One, convert::day_of_year),
    member("getDayOfMonth", &[Time], Int, One, convert::day_of_month),
    member("getDate", &[Time], Int, One, convert::date),
    member("getDayOfWeek", &[Time], Int, One, convert::day_of_week),
    member("getHours", &[Time], Int, One, convert::hours),
    member("getMinutes", &[Time], Int, One, convert::minutes),
    member("getSeconds", &[Time], Int, One, convert::seconds),
    member("getMilliseconds", &[Time], Int, One, convert::milliseconds),
    member("getHours", &[Duration], Int, One, convert::hours),
    member("getMinutes", &[Duration], Int, One, convert::minutes),
    member("getSeconds", &[Duration], Int, One, convert::seconds),
    member("getMilliseconds", &[Duration], Int, One, convert::milliseconds),
];

/// All of them.
pub(super) static PLAIN: [&[Overload]; 9] = [
    &LESS,
    &LESS_EQUAL,
    &GREATER,
    &GREATER_EQUAL,
    &PLUS,
    &MINUS,
    &TIMES,
    &OVER,
    &OTHERS,
];
