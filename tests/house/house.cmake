# Tests that are not C++: the rules of the house, the two scripts, tests through the command line,
# the models that tests need, and the other builds (clang++ with sanitizers and fuzzing, threads,
# arm64).
find_program(KVIKK_PYTHON NAMES python3 REQUIRED)

# Its instructions are counted; callgrind has no use for other processors' programs.
add_executable(hot_kernels ${CMAKE_CURRENT_SOURCE_DIR}/house/hot_kernels.cpp)
target_link_libraries(hot_kernels PRIVATE kvikk_kernels)

# Every tests/FOLDER/NAME_test.py.
file(GLOB scripts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/*/*_test.py)
foreach(script ${scripts})
  cmake_path(GET script STEM name)
  cmake_path(GET script PARENT_PATH folder)
  cmake_path(GET folder FILENAME folder)
  set(python ${KVIKK_PYTHON})
  if(folder STREQUAL "python" AND TARGET kvikk_python)  # what the module was built for
    set(python ${Python_EXECUTABLE})
  endif()
  add_test(NAME ${folder}.${name} COMMAND ${python} -B ${script})
  set_tests_properties(${folder}.${name} PROPERTIES LABELS ${folder} TIMEOUT 600)
  if(TARGET kvikk)
    set_tests_properties(${folder}.${name} PROPERTIES ENVIRONMENT
      "KVIKK_PROGRAM=$<TARGET_FILE:kvikk>;KVIKK_HOT_KERNELS=$<TARGET_FILE:hot_kernels>")
  endif()
  if(folder STREQUAL "python" AND TARGET kvikk_python)
    set_tests_properties(${folder}.${name} PROPERTIES ENVIRONMENT
      "KVIKK_PYTHON_FOLDER=$<TARGET_FILE_DIR:kvikk_python>")
  endif()
  if(folder STREQUAL "real")
    set_tests_properties(${folder}.${name} PROPERTIES FIXTURES_REQUIRED small_models)
  elseif(folder STREQUAL "large")
    set_tests_properties(${folder}.${name} PROPERTIES FIXTURES_REQUIRED large_model TIMEOUT 3000)
  endif()
endforeach()

add_test(NAME house.tidy COMMAND ${KVIKK_PYTHON} -B tools/tidy.py
         WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
add_test(NAME house.format COMMAND ${KVIKK_PYTHON} -B tools/tidy.py --format
         WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(house.tidy house.format PROPERTIES LABELS house)

get_target_property(kernels_type kvikk_kernels TYPE)
if(kernels_type STREQUAL "STATIC_LIBRARY" AND CMAKE_BUILD_TYPE STREQUAL "Release")
  add_test(NAME house.kernel_objects
           COMMAND ${KVIKK_PYTHON} -B ${CMAKE_SOURCE_DIR}/tools/tidy.py
                   --kernel-objects $<TARGET_OBJECTS:kvikk_kernels>
           COMMAND_EXPAND_LISTS)
  set_tests_properties(house.kernel_objects PROPERTIES LABELS house)
endif()

if(TARGET kvikk)
  add_test(NAME fetch.small_models COMMAND ${CMAKE_SOURCE_DIR}/tests/house/fetch_models.sh
           $<TARGET_FILE:kvikk> smollm2-135m qwen2.5-coder-0.5b gemma-3-270m all-minilm-l6-v2)
  add_test(NAME fetch.large_model COMMAND ${CMAKE_SOURCE_DIR}/tests/house/fetch_models.sh
           $<TARGET_FILE:kvikk> qwen2.5-coder-1.5b)
  set_tests_properties(fetch.small_models PROPERTIES
                       FIXTURES_SETUP small_models LABELS real TIMEOUT 1800)
  set_tests_properties(fetch.large_model PROPERTIES
                       FIXTURES_SETUP large_model LABELS large TIMEOUT 1800)
endif()

# The other builds, only where ./test builds: they are folders inside its build folder. Each takes
# every core, and runs after the quick tests (a higher COST starts earlier; the default is 0).
if(CMAKE_BINARY_DIR STREQUAL "${CMAKE_SOURCE_DIR}/build")
  set(cost -1)
  foreach(build fuzz tsan arm64)
    add_test(NAME build.${build} COMMAND ${CMAKE_SOURCE_DIR}/tools/check_build.sh ${build})
    set_tests_properties(build.${build} PROPERTIES
                         LABELS builds RUN_SERIAL ON COST ${cost} TIMEOUT 2400)
    math(EXPR cost "${cost} - 1")
  endforeach()
endif()
