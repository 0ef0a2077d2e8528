# fmt as an archive: Debian has its headers, and a shared library for another C++ runtime than the wheel's.
add_library(penstock_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
set_target_properties(penstock_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_library(fmt::fmt ALIAS penstock_fmt)
