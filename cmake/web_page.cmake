# The chat page goes into the program: what web/ holds, and from Debian's packages the Markdown
# parser, the sanitizer, the highlighter of code, and KaTeX for formulas with its fonts.
function(find_web_file variable name folder)
  find_file(${variable} ${name} PATHS ${folder} REQUIRED NO_DEFAULT_PATH)
endfunction()
find_web_file(KVIKK_MARKED marked.umd.min.js /usr/share/nodejs/marked/lib)
find_web_file(KVIKK_PURIFY purify.min.js /usr/share/nodejs/dompurify/dist)
find_web_file(KVIKK_HIGHLIGHT highlight.min.js /usr/share/javascript/highlight.js)
find_web_file(KVIKK_KATEX katex.min.js /usr/share/javascript/katex)
find_web_file(KVIKK_KATEX_STYLE katex.min.css /usr/share/javascript/katex)
get_filename_component(katex_folder ${KVIKK_KATEX_STYLE} DIRECTORY)
file(GLOB katex_fonts CONFIGURE_DEPENDS ${katex_folder}/fonts/*.woff2)

set(web ${CMAKE_SOURCE_DIR}/web)
set(web_files
    "/|text/html|${web}/index.html"
    "/style.css|text/css|${web}/style.css"
    "/app.js|text/javascript|${web}/app.js"
    "/markdown.js|text/javascript|${web}/markdown.js"
    "/marked.js|text/javascript|${KVIKK_MARKED}"
    "/purify.js|text/javascript|${KVIKK_PURIFY}"
    "/highlight.js|text/javascript|${KVIKK_HIGHLIGHT}"
    "/katex.js|text/javascript|${KVIKK_KATEX}"
    "/katex.css|text/css|${KVIKK_KATEX_STYLE}")
foreach(font IN LISTS katex_fonts)
  get_filename_component(name ${font} NAME)
  list(APPEND web_files "/fonts/${name}|font/woff2|${font}")
endforeach()
set(web_sources "")
foreach(entry IN LISTS web_files)
  string(REGEX REPLACE ".*[|]" "" source "${entry}")
  list(APPEND web_sources "${source}")
endforeach()
set(web_output ${CMAKE_BINARY_DIR}/web_assets.cpp)
add_custom_command(
  OUTPUT ${web_output}
  COMMAND ${CMAKE_COMMAND} -DOUT=${web_output} "-DFILES=${web_files}"
          -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${web_sources} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  VERBATIM)
target_sources(kvikk_serving PRIVATE ${web_output})
