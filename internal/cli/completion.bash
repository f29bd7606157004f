# Completion of belfry for bash. Load it with: source <(belfry completion bash)
_belfry() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("${line%%$'\t'*}")
  done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  # bash has split the word at =, so it expects only the part after it.
  if [[ ${COMP_WORDS[COMP_CWORD]} == = || ${COMP_WORDS[COMP_CWORD - 1]} == = ]]; then
    COMPREPLY=("${COMPREPLY[@]#*=}")
  fi
}
complete -o default -F _belfry belfry
