# The wheel's compiler and libraries, which make.sh has laid out in PENSTOCK_WHEEL_TOOLS: zig's clang, whose libc++ is
# linked in and whose glibc is an old one, and headers and archives apart from the system's, which has a newer one.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES PENSTOCK_WHEEL_TOOLS CMAKE_SYSTEM_PROCESSOR)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_CXX_COMPILER ${PENSTOCK_WHEEL_TOOLS}/zig-clang++)
set(CMAKE_CXX_STANDARD_INCLUDE_DIRECTORIES ${PENSTOCK_WHEEL_TOOLS}/usr/include)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)  # by the linker, which knows every processor
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
set(CMAKE_STRIP true)
set(CMAKE_LIBRARY_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
# Of a header to precompile zig wants less said than clang. CMake reads this file once more, after its own on compilers.
set(CMAKE_USER_MAKE_RULES_OVERRIDE ${CMAKE_CURRENT_LIST_FILE})
set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -Xclang -include -Xclang <PCH_HEADER> -x c++-header)

set(CMAKE_FIND_ROOT_PATH ${PENSTOCK_WHEEL_TOOLS})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${PENSTOCK_WHEEL_TOOLS})
set(ENV{PKG_CONFIG_LIBDIR} ${PENSTOCK_WHEEL_TOOLS}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig)
set(fmt_DIR ${CMAKE_CURRENT_LIST_DIR})
set(spdlog_DIR ${CMAKE_CURRENT_LIST_DIR})
