#compdef belfry
# Completion of belfry for zsh. Load it after compinit with: source <(belfry completion zsh)
_belfry() {
  local line
  local -a proposals
  for line in "${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -n $line ]] && proposals+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  if (( $#proposals )); then
    _describe belfry proposals
  else
    _files
  fi
}
if [[ $funcstack[1] == _belfry ]]; then
  _belfry "$@"
else
  compdef _belfry belfry
fi
