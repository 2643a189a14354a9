# Read by interactive shells; forks nothing.
case $- in *i*) ;; *) return ;; esac
HISTCONTROL=ignoreboth
HISTSIZE=1000
shopt -s histappend checkwinsize
alias ls='ls --color=auto'
alias grep='grep --color=auto'
