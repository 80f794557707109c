"use strict";
const doc=JSON.parse(document.getElementById("document").textContent);
const el=(tag,attrs={},...kids)=>{const n=document.createElement(tag);for(const[k,v]of Object.entries(attrs))k==="class"?n.className=v:n.setAttribute(k,v);for(const kid of kids)if(kid!=null)n.append(kid);return n};
const parts=t=>t.match(/'(?:[^']|'')*'|\s+|\w+|[^\s\w']+|'/g)||[],blank=t=>!t.trim(),fold=t=>t[0]==="'"?t:t.toLowerCase();
// the query with what the other has not marked, by their longest common subsequence of tokens
function marked(sql,other){const a=parts(sql),b=parts(other).filter(t=>!blank(t)).map(fold),w=a.filter(t=>!blank(t)).map(fold);
 if(w.length*b.length>250000)return[sql];
 const best=Array.from({length:w.length+1},()=>new Uint16Array(b.length+1));
 for(let i=w.length-1;i>=0;i--)for(let j=b.length-1;j>=0;j--)best[i][j]=w[i]===b[j]?best[i+1][j+1]+1:Math.max(best[i+1][j],best[i][j+1]);
 let i=0,j=0;return a.map(t=>{if(blank(t))return t;while(j<b.length&&w[i]!==b[j]&&best[i][j+1]>=best[i+1][j])j++;
  const same=j<b.length&&w[i]===b[j];i++;if(same)j++;return same?t:el("mark",{},t)})}
// what is said of a query, and the query; null is a text left out
const query=(label,sql,other)=>[el("div",{},...label),sql==null?null:el("pre",{},...(sql?marked(sql,other??sql):["(none)"]))];
// cards under a search field, a hundred at a time
function list(place,cards,said){const filter=el("input",{type:"search",placeholder:"filter by question, SQL, reason, database"}),count=el("div",{class:"soft"}),body=el("div");
 let shown=100;for(const c of cards)c.text=JSON.stringify(c).toLowerCase();
 function fill(){const q=filter.value.toLowerCase(),hits=cards.filter(c=>!q||c.text.includes(q));body.replaceChildren(...hits.slice(0,shown).map(c=>c.draw()));count.textContent=said(hits);
  if(hits.length>shown){const more=el("button",{},"show more");more.onclick=()=>{shown+=100;fill()};body.append(more)}}
 filter.oninput=()=>{shown=100;fill()};place.append(filter,count,body);fill()}
