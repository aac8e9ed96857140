# kvikk_commit: the commit that the program was built from, as KVIKK_COMMIT in "kvikk_commit.h".
# Looked up at every build; the header is rewritten only when the answer changed, so that an
# unchanged tree compiles nothing. Run as a script (-P) it does the look-up itself.
if(CMAKE_SCRIPT_MODE_FILE)
  execute_process(COMMAND git -c "safe.directory=${source}" -C "${source}" describe --always
                          --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT commit)
    set(commit unknown)
  endif()
  file(WRITE "${header}.new" "#pragma once\n#define KVIKK_COMMIT \"${commit}\"\n")
  file(COPY_FILE "${header}.new" "${header}" ONLY_IF_DIFFERENT)
  return()
endif()

set(commit_folder ${CMAKE_BINARY_DIR}/commit)
file(MAKE_DIRECTORY ${commit_folder})
add_custom_target(kvikk_commit_header
  COMMAND ${CMAKE_COMMAND} -Dsource=${CMAKE_SOURCE_DIR} -Dheader=${commit_folder}/kvikk_commit.h
          -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${commit_folder}/kvikk_commit.h VERBATIM COMMENT "Reading the commit")
add_library(kvikk_commit INTERFACE)
target_include_directories(kvikk_commit INTERFACE ${commit_folder})
add_dependencies(kvikk_commit kvikk_commit_header)
