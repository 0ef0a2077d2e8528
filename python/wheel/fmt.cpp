// The functions that fmt's headers declare, and the templates among them that are defined nowhere else. Header-only,
// each file would be compiled with all of them, which takes as long again as the rest of it.
#define FMT_CONSTEVAL  // newer clangs do not take what fmt 10 says to be constant
#include <fmt/format-inl.h>

namespace fmt::detail {

template thousands_sep_result<char> thousands_sep_impl<char>(locale_ref);
template char decimal_point_impl<char>(locale_ref);
template dragonbox::decimal_fp<float> dragonbox::to_decimal<float>(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal<double>(double) noexcept;
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;

}  // namespace fmt::detail
