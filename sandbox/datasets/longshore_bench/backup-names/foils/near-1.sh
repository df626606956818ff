# Quoted everywhere, but line breaks still part a name, and the count is lost in the pipe's subshell.
sed -i -e 's/cd \$1/cd "$1" || exit 2/' -e 's/-name \*.dat/-type f -iname "*.dat"/' -e 's/while read file/while IFS= read -r file/' \
    -e 's|\$2/\$file|"$2/$file"|g' -e 's| \$file| "$file"|g' -e 's|\$(dirname|"$(dirname|; s|)$|)"|' /app/backup.sh
