# What `cmake --install` puts where: headers, library, program, and the two ways to find them.
# Everything is relative to the prefix, so that the installed tree can be moved.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/onepass)

install(TARGETS onepass EXPORT onepassTargets)
install(DIRECTORY include/onepass DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp")
install(EXPORT onepassTargets NAMESPACE onepass:: DESTINATION ${package_dir})
if(ONEPASS_BUILD_CLI)
  install(TARGETS onepass_cli)
endif()

configure_package_config_file(cmake/onepassConfig.cmake.in onepassConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(onepassConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/onepassConfig.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/onepassConfigVersion.cmake
  DESTINATION ${package_dir})

# A shared onepass knows its own libraries; whoever links a static one has to name them, and with
# --static alone nobody would: one of the two is installed, so there is nothing else to link.
set(pc_libs "")
if(NOT BUILD_SHARED_LIBS)
  set(pc_libs "-lhwy -fopenmp")
  if(ONEPASS_CUDA_ENABLED)
    string(APPEND pc_libs " -L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt -lpthread")
  endif()
endif()
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH pc_dir_to_prefix /${pc_dir} /)
string(REGEX REPLACE "/$" "" pc_dir_to_prefix ${pc_dir_to_prefix})
configure_file(cmake/onepass.pc.in onepass.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/onepass.pc DESTINATION ${pc_dir})

# `make deb`: the same files below /usr, as one package that names the libraries it needs.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The onepass maintainers <maintainers@onepass.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(NOT BUILD_SHARED_LIBS)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS libhwy-dev)  # whoever links a static onepass links Highway, too
endif()
include(CPack)
