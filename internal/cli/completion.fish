# Completion of belfry for fish. Load it with: belfry completion fish | source
function __belfry_complete
    set -l words (commandline -opc)
    $words[1] complete -- $words[2..-1] (commandline -ct) 2>/dev/null
end
complete -c belfry -n 'string length -q -- (__belfry_complete)' -f -a '(__belfry_complete)'
