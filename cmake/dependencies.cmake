# Everything that is not ours. scripts/setup.sh installs it; HYPER_DEPS is where it puts what the
# distribution does not carry (or carries too old).
if(NOT DEFINED HYPER_DEPS)
  if(DEFINED ENV{HYPER_DEPS})
    set(HYPER_DEPS "$ENV{HYPER_DEPS}")
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(HYPER_DEPS "$ENV{XDG_CACHE_HOME}/hyper")
  else()
    set(HYPER_DEPS "$ENV{HOME}/.cache/hyper")
  endif()
endif()
set(HYPER_DEPS "${HYPER_DEPS}" CACHE PATH "Where scripts/setup.sh installed ONNX and oneDNN")

find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Protobuf REQUIRED)
# An installed one is taken when it is new enough; PATHS are looked at last.
find_package(ONNX 1.22 REQUIRED CONFIG PATHS "${HYPER_DEPS}/onnx-1.22.0")
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)
find_package(MPI REQUIRED COMPONENTS CXX)

# The wheel's CMake files refer to the builder's file system, so the target is declared here.
set(HYPER_ONEDNN_ROOT "${HYPER_DEPS}/onednn-2023.2.0" CACHE PATH "oneDNN 3 (libgomp build)")
find_library(HYPER_ONEDNN_LIBRARY dnnl PATHS "${HYPER_ONEDNN_ROOT}/lib" NO_DEFAULT_PATH REQUIRED)
add_library(hyper_onednn INTERFACE)
target_include_directories(hyper_onednn SYSTEM INTERFACE "${HYPER_ONEDNN_ROOT}/include")
target_link_libraries(hyper_onednn INTERFACE "${HYPER_ONEDNN_LIBRARY}" OpenMP::OpenMP_CXX)
