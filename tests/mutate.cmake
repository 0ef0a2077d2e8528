# cmake -DNAME=… -DSOURCE=… -DREPLACEMENTS=<folder> -DOUTPUT=… -P mutate.cmake
# copies SOURCE to OUTPUT with the text of each <folder>/N.from replaced by that of <folder>/N.to.
file(READ ${SOURCE} text)
file(GLOB froms ${REPLACEMENTS}/*.from)
foreach(from IN LISTS froms)
  string(REGEX REPLACE "from$" "to" to ${from})
  file(READ ${from} old)
  file(READ ${to} new)
  string(FIND "${text}" "${old}" first)
  string(FIND "${text}" "${old}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "mutant ${NAME}: this text is not in ${SOURCE}, or more than once; say what it is now where the "
      "mutant is listed:\n${old}")
  endif()
  string(REPLACE "${old}" "${new}" text "${text}")
endforeach()
file(WRITE ${OUTPUT} "${text}")
