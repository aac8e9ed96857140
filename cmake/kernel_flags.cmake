# Each kernel file is compiled for its own instruction set; everything else stays at the baseline,
# so that the program starts on any x86-64 and chooses at run time.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  file(GLOB avx2_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/avx2*.cpp)
  file(GLOB avx512_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/avx512*.cpp)
  file(GLOB amx_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/amx*.cpp)
  set(avx2_flags -mavx2 -mfma -mf16c)
  set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vbmi
      -mavx512vnni -mavx512bf16 -mprefer-vector-width=512)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # its AVX-512 header trips them (GCC bug 105593)
    list(APPEND avx512_flags -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  if(KVIKK_SANITIZE MATCHES "address")
    # These files are thousands of loads in a row. Checking each inline takes minutes to compile;
    # AddressSanitizer calls a function instead, and keeps finding what is out of bounds.
    set(checks -fno-sanitize=null,alignment,object-size,pointer-overflow)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
      list(APPEND checks -mllvm -asan-instrumentation-with-call-threshold=0)
    else()
      list(APPEND checks --param asan-instrumentation-with-call-threshold=0)
    endif()
    if(KVIKK_FUZZ)  # no input of a fuzzer chooses a path here
      list(APPEND checks -fno-sanitize=fuzzer-no-link)
    endif()
    list(APPEND avx2_flags ${checks})
    list(APPEND avx512_flags ${checks})
  endif()
  set_source_files_properties(${avx2_sources} PROPERTIES COMPILE_OPTIONS "${avx2_flags}")
  set_source_files_properties(${avx512_sources} PROPERTIES COMPILE_OPTIONS "${avx512_flags}")
  set_source_files_properties(${amx_sources} PROPERTIES
                              COMPILE_OPTIONS "${avx512_flags};-mamx-tile;-mamx-int8")
  set(kvikk_foreign_kernels "^$")
else()
  # Kernels of another processor, which the compiler here would not understand.
  set(kvikk_foreign_kernels "/src/kernels/(avx|amx)[^/]*$")
endif()
