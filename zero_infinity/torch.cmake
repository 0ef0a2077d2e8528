# LibTorch as imported targets of our own. The packaged TorchConfig.cmake is not used: it fails to configure with
# C++20 on CMake 3.25 where a CUDA toolkit is but no GPU, and it links far more than the engine needs.
#
# Gives penstock::torch (c10, torch_cpu); with CUDA also penstock::torch_c10_cuda (streams, events, allocator) and,
# where all that libtorch_cuda.so needs is there, penstock::torch_cuda (its kernels as well).

# Accepted versions: PENSTOCK_TORCH_MIN <= v < PENSTOCK_TORCH_BELOW. From 2.12 on autograd::Node is an intrusive_ptr,
# before 2.9 the wheels have the old C++ ABI or lack headers used here. ./run reads these two lines as well.
set(PENSTOCK_TORCH_MIN 2.9)
set(PENSTOCK_TORCH_BELOW 2.12)

if(NOT EXISTS ${PENSTOCK_TORCH_DIR}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No LibTorch in PENSTOCK_TORCH_DIR='${PENSTOCK_TORCH_DIR}'. "
    "Use ./run build, which finds or installs one, or pass -DPENSTOCK_TORCH_DIR=<.../torch of a wheel>.")
endif()

file(STRINGS ${PENSTOCK_TORCH_DIR}/version.py torch_version_line REGEX "^__version__ *= *'[0-9.]+")
string(REGEX MATCH "[0-9]+(\\.[0-9]+)*" torch_version "${torch_version_line}")
if(torch_version VERSION_LESS PENSTOCK_TORCH_MIN OR torch_version VERSION_GREATER_EQUAL PENSTOCK_TORCH_BELOW)
  message(FATAL_ERROR "LibTorch ${torch_version} in ${PENSTOCK_TORCH_DIR} is outside the accepted range "
    "${PENSTOCK_TORCH_MIN} <= version < ${PENSTOCK_TORCH_BELOW}. Set PENSTOCK_TORCH to another one, or unset it.")
endif()
message(STATUS "LibTorch ${torch_version}: ${PENSTOCK_TORCH_DIR}")

# torch_library(<name> <links...>) imports lib<name>.so.
function(torch_library name)
  add_library(torch_${name} SHARED IMPORTED GLOBAL)
  set_target_properties(torch_${name} PROPERTIES IMPORTED_LOCATION ${PENSTOCK_TORCH_DIR}/lib/lib${name}.so)
  target_link_libraries(torch_${name} INTERFACE ${ARGN})
endfunction()

# -idirafter, not -isystem: the wheel carries headers of other libraries too, and its fmt 12 must not stand before the
# system's fmt, which the layers below are built with.
add_library(torch_headers INTERFACE)
target_compile_options(torch_headers INTERFACE
  "SHELL:-idirafter ${PENSTOCK_TORCH_DIR}/include"
  "SHELL:-idirafter ${PENSTOCK_TORCH_DIR}/include/torch/csrc/api/include")
# All wheels in the accepted range are built with the new C++ ABI, which need not be the compiler's default.
target_compile_definitions(torch_headers INTERFACE _GLIBCXX_USE_CXX11_ABI=1)

torch_library(c10 torch_headers)
torch_library(torch_cpu torch_c10)
add_library(penstock::torch ALIAS torch_torch_cpu)

if(PENSTOCK_WITH_CUDA AND EXISTS ${PENSTOCK_TORCH_DIR}/lib/libc10_cuda.so)
  torch_library(c10_cuda torch_torch_cpu CUDA::toolkit)
  add_library(penstock::torch_c10_cuda ALIAS torch_c10_cuda)

  # libtorch_cuda.so registers its kernels when it is loaded and no symbol of it is named, hence --no-as-needed.
  # What it needs of the GPU's driver is not on a machine that only builds, hence --allow-shlib-undefined.
  execute_process(COMMAND ldd ${PENSTOCK_TORCH_DIR}/lib/libtorch_cuda.so OUTPUT_VARIABLE torch_cuda_needs ERROR_QUIET)
  string(REGEX MATCHALL "[^\t\n ]+ => not found" torch_cuda_lacks "${torch_cuda_needs}")
  if(torch_cuda_lacks)
    message(STATUS "LibTorch's CUDA kernels are not linked: ${torch_cuda_lacks}")
  else()
    torch_library(torch_cuda torch_c10_cuda)
    add_library(torch_cuda_kernels INTERFACE)
    target_link_libraries(torch_cuda_kernels INTERFACE
      "-Wl,--push-state,--no-as-needed" torch_torch_cuda "-Wl,--pop-state,--allow-shlib-undefined")
    add_library(penstock::torch_cuda ALIAS torch_cuda_kernels)
  endif()
endif()
