# The Python module `kvikk` (apps/python), in build/python. A module is a shared object, so what it
# is made of is compiled once more, position independent; except the kernels, which name nothing
# outside themselves that would have to be found at run time, and lie in it as they are.
if(NOT Python_EXECUTABLE)  # -DPython_EXECUTABLE=... builds for another one
  set(Python_EXECUTABLE /usr/bin/python3)
endif()
set(PYBIND11_FINDPYTHON ON)
find_package(Python COMPONENTS Interpreter Development.Module QUIET)
if(Python_Development.Module_FOUND)
  find_package(pybind11 CONFIG QUIET)
endif()
if(NOT pybind11_FOUND)
  message(STATUS "The Python module is left out: it needs python3-dev and pybind11-dev")
  return()
endif()
file(GLOB sources CONFIGURE_DEPENDS apps/python/*.cpp src/base/*.cpp src/codec/*.cpp
     src/search/*.cpp)
pybind11_add_module(kvikk_python MODULE NO_EXTRAS ${sources})
target_link_libraries(kvikk_python PRIVATE kvikk_flags kvikk_kernels Threads::Threads
                      PkgConfig::XXHASH
                      "-Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/python_exports.map")
set_target_properties(kvikk_python PROPERTIES OUTPUT_NAME kvikk
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python)
