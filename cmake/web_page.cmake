# The chat page goes into the program: what web/ holds, and Debian's Markdown parser and sanitizer.
find_file(KVIKK_MARKED marked.umd.min.js PATHS /usr/share/nodejs/marked/lib REQUIRED
          NO_DEFAULT_PATH)
find_file(KVIKK_PURIFY purify.min.js PATHS /usr/share/nodejs/dompurify/dist REQUIRED
          NO_DEFAULT_PATH)
set(web ${CMAKE_SOURCE_DIR}/web)
set(web_files
    "/|text/html|${web}/index.html"
    "/style.css|text/css|${web}/style.css"
    "/app.js|text/javascript|${web}/app.js"
    "/marked.js|text/javascript|${KVIKK_MARKED}"
    "/purify.js|text/javascript|${KVIKK_PURIFY}")
set(web_output ${CMAKE_BINARY_DIR}/web_assets.cpp)
add_custom_command(
  OUTPUT ${web_output}
  COMMAND ${CMAKE_COMMAND} -DOUT=${web_output} "-DFILES=${web_files}"
          -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${web}/index.html ${web}/style.css ${web}/app.js ${KVIKK_MARKED} ${KVIKK_PURIFY}
          ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  VERBATIM)
target_sources(kvikk_serving PRIVATE ${web_output})
